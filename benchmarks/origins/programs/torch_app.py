"""PyTorch fed by two DataLoader workers; a small step of a network a batch."""

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        return torch.full((256,), float(i % 7) + 0.5), i % 10


def main():
    loader = DataLoader(Rows(), batch_size=256, num_workers=2, pin_memory=False)
    batches = iter(loader)  # the workers are forked before this process touches CUDA
    torch.backends.cuda.matmul.allow_tf32 = False
    layer = torch.nn.Linear(256, 512).cuda()
    head = torch.nn.Linear(512, 10).cuda()
    for x, label in batches:
        x, label = x.cuda(), label.cuda()
        torch.cuda.nvtx.range_push("step")
        logits = head(torch.relu(layer(x)))
        loss = torch.nn.functional.cross_entropy(logits, label)
        loss.backward()
        torch.cuda.nvtx.range_pop()
    torch.cuda.synchronize()
    print("torch", float(loss))


if __name__ == "__main__":
    main()
