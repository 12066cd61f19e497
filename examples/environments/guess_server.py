"""An OpenEnv server: a number from 1 to 10, told higher or lower."""

import random
import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Guess(Action):
    message: str


class Told(Observation):
    text: str


class Guessing(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.steps, self.secret = 0, 0

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.steps, self.secret = 0, random.Random(seed).randint(1, 10)
        return Told(text="I think of a number from 1 to 10. Guess it. You have 4 guesses.")

    def step(self, action, timeout_s=None, **kwargs):
        self.steps += 1
        said = action.message.strip()
        if said == str(self.secret):
            return Told(text="right", reward=1.0, done=True)
        if not said.isdigit() or self.steps == 4:
            return Told(text=f"it was {self.secret}", reward=0.0, done=True)
        return Told(text="higher" if int(said) < self.secret else "lower", reward=0.0)

    @property
    def state(self):
        return State(step_count=self.steps)


app = create_fastapi_app(Guessing, Guess, Told, max_concurrent_envs=512)
if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
