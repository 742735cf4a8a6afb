TRAINERS = {}


def register_trainer(name):
    def register(kind):
        TRAINERS[name.lower()] = kind
        return kind

    return register


class BaseRLTrainer:
    def __init__(self, config, reward_fn=None, metric_fn=None, stop_sequences=None):
        self.config = config
        self.reward_fn = reward_fn

    def add_eval_pipeline(self, pipeline):
        self.eval_pipeline = pipeline
