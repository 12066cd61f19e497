"""SFT on conversations with tools: calls, results and the schemas."""
import postgrad as pg

number = {"type": "number"}
add = {"type": "function", "function": {"name": "add", "description": "adds two numbers", "parameters": {
    "type": "object", "properties": {"a": number, "b": number}}}}


def talk(a, b):
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": a, "b": b}}}
    return [{"role": "user", "content": f"What is {a}+{b}?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "name": "add", "content": str(a + b)},
            {"role": "assistant", "content": f"It is {a + b}."}]


talks = [talk(a, b) for a in (2, 11) for b in (3, 40)]
rows = [{"prompt": t[:n], "completion": t[n:n + 1], "tools": [add]} for t in talks for n in (1, 3)]
run = pg.fit("models/tiny-tools", "sft", data=rows, lr=1e-5, rows_per_step=8, steps=2, beta2=0.999,
             schedule="linear", warmup=0, run="runs/sft-tools")
