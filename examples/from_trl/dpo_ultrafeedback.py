"""DPO on rows of UltraFeedback's form: the prompt, which stands in three columns, is read once."""
import postgrad as pg


def talk(question, answer):
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


rows = [{"prompt": f"What is {n}+1?", "score_chosen": 8.0, "score_rejected": 3.0,
         "chosen": talk(f"What is {n}+1?", f"It is {n + 1}, {'very ' * (n % 3)}gladly."),
         "rejected": talk(f"What is {n}+1?", f"No{'!' * (n % 4)}")} for n in range(8)]
run = pg.fit("models/tiny-chat", pg.method("dpo", beta=0.1), data=rows, lr=1e-5, pairs={"per_step": 8},
             steps=2, beta2=0.999, schedule="linear", warmup=0, run="runs/dpo-ultrafeedback")
