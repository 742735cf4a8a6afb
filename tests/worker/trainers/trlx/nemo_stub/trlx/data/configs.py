from types import SimpleNamespace


class TRLConfig:
    @classmethod
    def from_dict(cls, config):
        made = cls()
        for section, values in config.items():
            setattr(made, section, SimpleNamespace(**values))
        return made
