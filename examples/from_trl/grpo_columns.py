"""GRPO with TRL's own defaults, which are no paper's: a token mean, a clip of 0.2 both ways, no KL, and
advantages over the sample's standard deviation."""
import postgrad as pg

rows = [{"prompt": [{"role": "user", "content": f"What is {a}+{b}?"}], "answer": str(a + b), "level": a}
        for a in (3, 7) for b in (2, 5)]


def right(completions, answer, level, **kwargs):
    return [n * float(gold in reply[0]["content"])
            for reply, gold, n in zip(completions, answer, level, strict=True)]


def short(completions, **kwargs):
    return [-len(reply[0]["content"]) / 40 for reply in completions]


def sample_zscore(reward, mask, group_size):
    total = reward.sum(1).view(-1, group_size)
    score = (total - total.mean(1, keepdim=True)) / (total.std(1, keepdim=True) + 1e-4)
    return score.reshape(-1, 1) * mask


row = pg.method("dapo", name="trl_grpo", credit=sample_zscore, high=0.2, resample_flat=False, overlong=False,
                minibatches=1)
run = pg.fit("models/tiny-chat", row, task=rows, reward={right: 1.0, short: 0.2}, lr=1e-5, prompts_per_step=4,
             group_size=4, rollouts={"max_new_tokens": 16}, steps=2, beta2=0.999, schedule="linear", warmup=0,
             evaluation={"every": 0}, run="runs/grpo-columns")
