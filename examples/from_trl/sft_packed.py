"""SFT on packed rows: every run is packed, and no row sees its neighbours; tokens_per_pass is the block."""
import postgrad as pg

rows = [{"prompt": [{"role": "user", "content": f"Say {n}."}],
         "completion": [{"role": "assistant", "content": f"I say {n}{' again' * (n % 5)}."}]}
        for n in range(12)]
run = pg.fit("models/tiny-chat", "sft", data=rows, tokens_per_pass=96, lr=1e-5, rows_per_step=12, steps=2,
             beta2=0.999, schedule="linear", warmup=0, run="runs/sft-packed")
