"""A reward model, trained further on new pairs; its scores are drawn to a mean of 0 by default."""
import postgrad as pg


def said(role, text):
    return [{"role": role, "content": text}]


rows = [{"prompt": said("user", f"What is {n}+1?"), "chosen": said("assistant", f"It is {n + 1}."),
         "rejected": said("assistant", f"Who knows{'?' * (n % 4)}")} for n in range(8)]
run = pg.fit("models/scorer", "reward", data=rows, lr=1e-5, pairs={"per_step": 8}, steps=2, beta2=0.999,
             schedule="linear", warmup=0, run="runs/reward")
