"""SFT on OpenAI's rows, whose turns of weight 0 are context and are not trained."""
import postgrad as pg

rows = [{"messages": [{"role": "user", "content": f"What is {n}+1?"},
                      {"role": "assistant", "content": f"It is {n}.", "weight": 0},
                      {"role": "user", "content": "Are you sure?"},
                      {"role": "assistant", "content": f"No, it is {n + 1}.", "weight": 1}]}
        for n in range(8)]
run = pg.fit("models/tiny-chat", "sft", data=rows, lr=1e-5, rows_per_step=8, steps=2, beta2=0.999,
             schedule="linear", warmup=0, run="runs/sft-weights")
