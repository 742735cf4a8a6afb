class PromptPipeline:
    def __init__(self, prompts, max_prompt_length, tokenizer):
        self.rows = [tokenizer.encode(prompt)[:max_prompt_length] for prompt in prompts]


def get_pipeline(name):
    return {"PromptPipeline": PromptPipeline}[name]
