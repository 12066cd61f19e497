"""The Tinker protocol beside OpenAI's: a client's loop trains adapters on the served model, or copies of all
its weights, and samples from what it saves. Every training run is a run folder.
"""
