"""Dr. GRPO with a reward that waits for a service: the function of TRL's script as it stands."""
import asyncio

import postgrad as pg

rows = [{"prompt": [{"role": "user", "content": f"Count to {n}."}]} for n in (3, 4, 5, 6)]


async def variety(completions, **kwargs):
    async def ask(text):
        await asyncio.sleep(0)  # a request
        return len(set(text)) / 40

    return await asyncio.gather(*(ask(reply[0]["content"]) for reply in completions))


run = pg.fit("models/tiny-chat", "dr_grpo", task=rows, reward=variety, lr=1e-5, prompts_per_step=4,
             group_size=4, rollouts={"max_new_tokens": 16}, steps=2, beta2=0.999, schedule="linear", warmup=0,
             evaluation={"every": 0}, run="runs/grpo-async")
