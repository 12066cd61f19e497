"""Chat templates in the style of the families with their tool branches, a tokenizer for each, and random
conversations whose turns were sampled."""

from tokenizers import Tokenizer

from postgrad.models import find_model
from postgrad.models.chat import Chat

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}
{{- '<|im_start|>system\\nYou are a helpful AI assistant.<|im_end|>\\n' }}{% endif %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""

QWEN25 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}
    {%- else %}{{- 'You are Qwen.' }}{%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools>\\n\\nReturn <tool_call>\\n{...}\\n</tool_call><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}{{- '<|im_start|>system\\nYou are Qwen.<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first)
           or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

QWEN3 = """{%- if messages[0].role == 'system' or tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {%- if tools %}{{- "# Tools" }}
        {%- for tool in tools %}{{- "\\n" ~ tool | tojson }}{%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string
          and not(message.content.startswith('<tool_response>')
                  and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] %}
            {%- set reasoning_content = reasoning_content.lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') }}
                {{- '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

LLAMA3 = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools %}{{- "Environment: ipython\\n" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{%- endfor %}
{%- endif %}
{{- system_message }}{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim }}
        {{- '<|eot_id|>' }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

IM = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
LLAMA = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>")


def styled(template, controls, eos, bos, ends=()):
    """The embedded tokenizer with further control tokens, and this template."""
    tokenizer = Tokenizer.from_file(str(find_model("tiny") / "tokenizer.json"))
    tokenizer.add_special_tokens(list(controls))
    ends = [tokenizer.token_to_id(name) for name in ends]
    return Chat(tokenizer, template, bos=bos, eos=eos, pad=None, ends=ends)


STYLES = {
    "ours": lambda: Chat.load(find_model("tiny-chat")),
    "ours with tools": lambda: Chat.load(find_model("tiny-tools")),
    "chatml": lambda: styled(CHATML, IM, "<|im_end|>", None),
    "qwen2.5": lambda: styled(QWEN25, IM, "<|im_end|>", None, ["<|endoftext|>"]),
    "qwen3": lambda: styled(QWEN3, IM, "<|im_end|>", None, ["<|endoftext|>"]),
    "llama3": lambda: styled(LLAMA3, LLAMA, "<|eot_id|>", "<|begin_of_text|>", ["<|eom_id|>"]),
}
TOOL = {"type": "function", "function": {"name": "calc", "description": "adds", "parameters": {}}}
WORDS = ["7", "12", "<tool>calc 1+2</tool>", "Hello", "é🙂", " ", "\n", "<answer>", "x", "the cat", "{}", "-"]


def text(rng, words=WORDS):
    return "".join(rng.choice(words) + rng.choice(["", " ", "\n"]) for _ in range(rng.randint(1, 5)))


def sampled_turn(chat, rng):
    """Ids that a policy might write, half of them in another tokenisation than the tokenizer's own; no two
    turns say the same."""
    said = f"{rng.choice(['', ' '])}z{rng.randrange(10**6)}z{text(rng)}"
    if rng.random() < 0.5:
        said = f"<think>\n{rng.choice(['Hm.', 'So', '1+1=2'])}\n</think>\n\n{said}"
    plain = rng.random() < 0.5
    ids = chat.encode(said) if plain else [i for letter in said for i in chat.encode(letter)]
    return [*ids, rng.choice(chat.stop)] if rng.random() < 0.9 else ids


def added(chat, rng):
    """What an environment says next: tools' results, or a person."""
    if rng.random() < 0.6:
        return [{"role": "tool", "content": chat.escaped(text(rng))} for _ in range(rng.randint(1, 2))]
    return [{"role": "user", "content": chat.escaped(text(rng))}]


def spliced(chat, messages, turns, tools):
    """The whole conversation, rendered, with each turn's own ids in the place of its text; None where a
    turn's text is not found in it."""
    whole, out, at = chat.text_of(messages, reply=True, tools=tools), [], 0
    for ids in turns:
        said = chat.spoken(ids)
        found = whole.find(said, at)
        if found < 0:
            said = said.strip()
            found = whole.find(said, at)
        if found < 0:
            return None
        out += [*chat.encode(whole[at:found]), *ids]
        at = found + len(said)
        if ids[-1] in chat.stop:
            rest = whole[at:]
            end = next(t for t in chat.stop_texts if rest.lstrip().startswith(t))
            at += len(rest) - len(rest.lstrip()) + len(end)
    return [*out, *chat.encode(whole[at:])]


def conversation(chat, rng):
    """A random conversation, turn by turn: (messages, the turns' ids, the row so far) before each reply."""
    tools = [TOOL] if rng.random() < 0.5 else []
    messages = [{"role": "user", "content": f"{text(rng)}?"}]
    if rng.random() < 0.5:
        messages.insert(0, {"role": "system", "content": "Be brief."})
    row, turns = chat.render(messages, tools), []
    for _ in range(rng.randint(1, 4)):
        ids = sampled_turn(chat, rng)
        turns.append(ids)
        row = [*row, *ids]
        messages += [{"role": "assistant", "content": chat.spoken(ids)}, *added(chat, rng)]
        yield tuple(messages), turns, row, tools
        longer = chat.extend(row, messages, tools)
        if longer is None:
            return
        row = longer
