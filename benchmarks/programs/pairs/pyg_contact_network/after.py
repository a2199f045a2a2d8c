"""Who infects whom: graph network on a city's contact network.

People are nodes, contacts of a diary study (each reported by one of the two
persons, with a duration) are edges.  From age, job and symptoms of a person and
of the contacts the network estimates the probability of infection this week.
"""
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_undirected

PEOPLE = 200_000
CONTACTS = 2_400_000
TRAITS = 24
HIDDEN = 8
WARMUP, TIMED, BLOCK = 6, 40, 5


def diary_study(seed=31):
    """Households and workplaces give local contacts, the rest is long range."""
    rng = np.random.default_rng(seed)
    reporter = rng.integers(0, PEOPLE, CONTACTS)
    near = rng.random(CONTACTS) < 0.7
    step = np.where(near, rng.integers(1, 400, CONTACTS), rng.integers(1, PEOPLE, CONTACTS))
    partner = (reporter + step) % PEOPLE
    minutes = rng.gamma(1.3, 40.0, CONTACTS).astype(np.float32)
    traits = rng.standard_normal((PEOPLE, TRAITS)).astype(np.float32)
    pressure = np.zeros(PEOPLE, dtype=np.float32)
    np.add.at(pressure, reporter, minutes * (traits[partner, 0] > 0.8))
    risk = 0.01 * pressure + 0.5 * traits[:, 1] - 1.2
    infected = (rng.random(PEOPLE) < 1 / (1 + np.exp(-risk))).astype(np.float32)
    return Data(x=torch.from_numpy(traits),
                edge_index=torch.from_numpy(np.stack([reporter, partner])),
                edge_weight=torch.from_numpy(minutes / 60.0),
                y=torch.from_numpy(infected))


class ContactNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.near = GCNConv(TRAITS, HIDDEN, normalize=False)
        self.far = GCNConv(HIDDEN, HIDDEN, normalize=False)
        self.own = nn.Linear(TRAITS, HIDDEN)
        self.out = nn.Linear(2 * HIDDEN, 1)

    def forward(self, data):
        edge_index, weight = data.edge_index, data.edge_weight
        h = F.relu(self.near(data.x, edge_index, weight))
        h = F.relu(self.far(h, edge_index, weight))
        return self.out(torch.cat([h, self.own(data.x)], 1)).squeeze(1)


def exposure_graph(data):
    # a contact exposes both persons, whoever wrote it down
    edge_index, weight = to_undirected(data.edge_index, data.edge_weight,
                                       num_nodes=data.num_nodes, reduce="add")
    data.edge_index, data.edge_weight = gcn_norm(edge_index, weight, data.num_nodes)
    return data


def positives_weight(y):
    share = y.mean()
    return ((1 - share) / share).detach()


def main():
    torch.manual_seed(31)
    device = torch.device("cuda")
    data = exposure_graph(diary_study().to(device))
    net = ContactNet().to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, fused=True)
    balance = positives_weight(data.y)
    losses = []

    def epoch():
        logits = net(data)
        loss = F.binary_cross_entropy_with_logits(logits, data.y, pos_weight=balance)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    for _ in range(WARMUP):
        epoch()
    torch.cuda.synchronize()

    spent = []
    for _ in range(TIMED // BLOCK):
        begin = time.perf_counter()
        for _ in range(BLOCK):
            epoch()
        torch.cuda.synchronize()
        spent.append((time.perf_counter() - begin) * 1e6 / BLOCK)

    curve = torch.stack(losses).cpu().numpy()
    print(json.dumps({"program": "pyg_contact_network", "steps": len(losses),
                      "us": float(np.median(spent)),
                      "result": [float(curve[0]), float(curve[-1]), float(curve.mean())]}))


if __name__ == "__main__":
    main()
