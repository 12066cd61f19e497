"""Supervised fine-tuning by the Tinker SDK, in a loop of one's own: a new way to answer sums.

    postgrad serve tiny-chat --tinker                                  # in another terminal
    TINKER_API_KEY=tml-local python examples/tinker/supervised.py http://127.0.0.1:8000 tiny-chat [STEPS]
"""

import sys

import tinker

STEPS, BATCH = int(sys.argv[3]) if len(sys.argv) > 3 else 20, 16

service = tinker.ServiceClient(base_url=sys.argv[1])
client = service.create_lora_training_client(base_model=sys.argv[2], rank=8).result()
tokenizer = client.get_tokenizer()


def tokens_of(messages, **how):
    return tokenizer.encode(tokenizer.apply_chat_template(messages, tokenize=False, **how),
                            add_special_tokens=False)


def datum(number):
    """A question and its answer; the weights say which tokens are trained."""
    question = {"role": "user", "content": f"What is {number}+{number % 7}?"}
    prompt = tokens_of([question], add_generation_prompt=True)
    tokens = tokens_of([question, {"role": "assistant", "content": f"It is {number + number % 7}."}])
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs={
        "target_tokens": tokens[1:],
        "weights": [float(place >= len(prompt)) for place in range(1, len(tokens))]})


def mean_loss(data, result):
    """The mean over the trained tokens; the server's loss is their sum."""
    weights = sum(sum(row.loss_fn_inputs["weights"].data) for row in data)
    return result.metrics["loss:sum"] / weights


for step in range(STEPS):
    data = [datum(step * BATCH + row) for row in range(BATCH)]
    passed = client.forward_backward(data, loss_fn="cross_entropy")
    stepped = client.optim_step(tinker.AdamParams(learning_rate=1e-3))  # both are sent, then awaited
    loss = mean_loss(data, passed.result())
    stepped.result()
    print(f"step {step}: loss {loss:.3f}")

sampler = client.save_weights_and_get_sampling_client().result()
prompt = tinker.ModelInput.from_ints(tokens_of([{"role": "user", "content": "What is 12+5?"}],
                                               add_generation_prompt=True))
reply = sampler.sample(prompt, num_samples=1, sampling_params=tinker.SamplingParams(
    max_tokens=24, temperature=0.0)).result().sequences[0]
print("What is 12+5?", tokenizer.decode(reply.tokens, skip_special_tokens=True))
service.close("success").result()
