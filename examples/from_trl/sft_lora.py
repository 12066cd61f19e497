"""SFT with a LoRA adapter on the attention; alpha is twice the rank by default."""
import postgrad as pg

rows = [{"prompt": [{"role": "user", "content": f"Say {n}."}],
         "completion": [{"role": "assistant", "content": f"I say {n}{' again' * (n % 5)}."}]}
        for n in range(8)]
run = pg.fit("models/tiny-chat", "sft", data=rows, lora=8, targets="q_proj,v_proj", lr=1e-4, rows_per_step=8,
             steps=2, beta2=0.999, schedule="linear", warmup=0, run="runs/sft-lora")
