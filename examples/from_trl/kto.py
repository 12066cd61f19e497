"""KTO on answers labelled good or bad."""
import postgrad as pg

rows = [{"prompt": [{"role": "user", "content": f"What is {n}+1?"}], "label": n % 2 == 0,
         "completion": [{"role": "assistant", "content": f"It is {n + n % 2}{' indeed' * n}."}]}
        for n in range(8, 0, -1)]
run = pg.fit("models/tiny-chat", pg.method("kto", beta=0.1), data=rows, lr=1e-5, pairs={"per_step": 8},
             steps=2, beta2=0.999, schedule="linear", warmup=0, run="runs/kto")
