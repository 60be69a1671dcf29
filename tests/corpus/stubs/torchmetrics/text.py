import torch


class Perplexity(torch.nn.Module):
    def __init__(self, ignore_index=None):
        super().__init__()
        self.total = self.count = 0

    def update(self, logits, labels):
        loss = torch.nn.functional.cross_entropy(
            logits.detach().float().flatten(0, 1), labels.flatten()
        )
        self.total, self.count = self.total + loss, self.count + 1

    def compute(self):
        return (self.total / self.count).exp()
