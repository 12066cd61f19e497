"""The endpoint: a model or the newest checkpoint of a run, over OpenAI's protocol; and agents that use it."""
