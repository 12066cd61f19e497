"""SFT with an evaluation set of one's own, and the best model at the end."""
import postgrad as pg


def rows(numbers, words):
    return [{"prompt": [{"role": "user", "content": f"Say {n}."}],
             "completion": [{"role": "assistant", "content": words.format(n)}]} for n in numbers]


run = pg.fit("models/tiny-chat", "sft", data=rows(range(8), "I say {}."),
             eval_data=rows(range(20, 28), "It is {}."), lr=3e-4, rows_per_step=8, steps=3,
             evaluation={"every": 1}, save_every=1, keep="best", beta2=0.999, schedule="linear", warmup=0,
             run="runs/sft-eval")
pg.load_model("runs/sft-eval@best").save("models/sft-eval")
