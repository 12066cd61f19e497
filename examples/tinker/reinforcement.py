"""Reinforcement learning by the Tinker SDK: advantages of one's own, the loss of a row of the table.

    postgrad serve tiny-chat --tinker                                  # in another terminal
    TINKER_API_KEY=tml-local python examples/tinker/reinforcement.py http://127.0.0.1:8000 tiny-chat [STEPS]

loss_fn="postgrad/dapo" is the row that `postgrad methods dapo` prints; "ppo" and "importance_sampling" are
the SDK's own.
"""

import sys

import tinker

STEPS, PROMPTS, GROUP = int(sys.argv[3]) if len(sys.argv) > 3 else 20, 4, 8

service = tinker.ServiceClient(base_url=sys.argv[1])
client = service.create_lora_training_client(base_model=sys.argv[2], rank=8).result()
tokenizer = client.get_tokenizer()
sampling = tinker.SamplingParams(max_tokens=24, temperature=1.0)


def reward_of(text):
    """1 for a reply of up to 12 characters, less the longer it is; nothing for none at all."""
    return min(1.0, 12 / len(text)) if text else 0.0


for step in range(STEPS):
    sampler = client.save_weights_and_get_sampling_client().result()
    asked = []
    for number in range(step * PROMPTS, (step + 1) * PROMPTS):
        talk = [{"role": "user", "content": f"Tell me about the number {number}."}]
        text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
        prompt = tinker.ModelInput.from_ints(tokenizer.encode(text, add_special_tokens=False))
        asked.append((prompt, sampler.sample(prompt, num_samples=GROUP, sampling_params=sampling)))
    data, total = [], 0.0
    for prompt, future in asked:
        group = future.result().sequences
        rewards = [reward_of(tokenizer.decode(one.tokens, skip_special_tokens=True)) for one in group]
        total += sum(rewards)
        for one, reward in zip(group, rewards, strict=True):
            before = prompt.length - 1  # columns that no sampled token is the target of
            advantage = reward - sum(rewards) / GROUP
            data.append(tinker.Datum(
                model_input=tinker.ModelInput.from_ints(prompt.to_ints() + list(one.tokens[:-1])),
                loss_fn_inputs={"target_tokens": [0] * before + list(one.tokens),
                                "logprobs": [0.0] * before + list(one.logprobs),
                                "advantages": [0.0] * before + [advantage] * len(one.tokens)}))
    passed = client.forward_backward(data, loss_fn="postgrad/dapo")
    client.optim_step(tinker.AdamParams(learning_rate=1e-3)).result()
    passed.result()
    print(f"step {step}: reward {total / (PROMPTS * GROUP):.2f}")
service.close("success").result()
