"""What runs took of their devices: each run's share of time and energy, and the sums over studies and datasets."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.storage.row import is_gpu
from reports.tables.table import Column, Table
from reports.wording import counted

SECONDS, JOULES = "cost:seconds", "cost:energy_joules"
SHARING, DEVICES = "cost:shared", "cost:devices"
KEYS = (SECONDS, JOULES, SHARING, DEVICES)
"""What is read of a run, as far as its record says it."""
COLUMNS = (Column("share:seconds", "Time", "time", "Time of the device; of one that runs shared, the part of this one"),
           Column("share:energy_wh", "Energy, Wh", "number", "Watt hours that the GPU took while the run trained and "
                  "was evaluated, without the rest of the machine; of a GPU that runs shared, the part of this one", 2))
"""The shares of a run as tables show them; see `with_shares`."""
HOURS = {"gpu_hours": "GPU-hours", "cpu_hours": "CPU-hours"}


def share(runs: pd.DataFrame, cost: str) -> pd.Series:
    """Each run's share of what its device spent while it ran: SECONDS or JOULES.

        share_r = x_r / n_r

    x_r are the joules of the whole device, which every run on it counts, or its seconds, as often as r had devices
    (DEVICES); n_r is the number of runs on the device meanwhile, r among them, by its harmonic mean over time (SHARING;
    1 where a record does not say it). Shares can be added up, where x_r would count a device once for each run on it:
    those of the time exactly, those of the energy as far as the device takes as much at any time. Of what was submitted
    neither is known: its record tells the time of scoring.

    >>> alike = {"source": "run", "cost:seconds": 60.0, "cost:energy_joules": 7200.0}
    >>> runs = pd.DataFrame([alike | {"cost:shared": n} for n in (1.0, 2.0, None)] + [alike | {"source": "submitted"}])
    >>> share(runs, SECONDS).tolist(), share(runs, JOULES).tolist()
    ([60.0, 30.0, 60.0, nan], [7200.0, 3600.0, 7200.0, nan])
    """
    spent = _told(runs, cost) * (_told(runs, DEVICES).fillna(1) if cost == SECONDS else 1)
    return (spent / _told(runs, SHARING).fillna(1).clip(lower=1)).where(runs["source"] != "submitted")


def _told(runs: pd.DataFrame, key: str) -> pd.Series:
    """What records say, missing where they do not."""
    return runs.reindex(columns=[key])[key].astype(float)


def with_shares(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with `share:seconds` of their device's time and `share:energy_wh` of its energy, in watt hours."""
    return runs.assign(**{"share:seconds": share(runs, SECONDS), "share:energy_wh": share(runs, JOULES) / 3600})


def of_rows(runs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """The sums of shares over the runs of each row, `seconds` and `energy_wh`; missing where one of them is."""
    grouped = with_shares(runs).groupby(by)
    sums = {key.removeprefix("share:"): grouped[key].sum().where(grouped[key].count() == grouped.size())
            for key in ("share:seconds", "share:energy_wh")}
    return pd.DataFrame(sums)


def total(runs: pd.DataFrame) -> dict[str, Any]:
    """What runs took together, without those that were submitted, and how many of them do not tell their energy.

        gpu_hours = sum_r share_r(seconds) / 3600 over the runs on GPUs, cpu_hours over the others
        kwh = sum_r share_r(joules) / 3.6e6

    Energy is not known of runs on a CPU, of ensembles of finished runs and of records of earlier versions.

    >>> gpu = {"source": "run", "device": "NVIDIA H200", "cost:seconds": 7200.0, "cost:energy_joules": 5.4e6}
    >>> cpu = {"source": "run", "device": "AMD EPYC", "cost:seconds": 900.0}
    >>> total(pd.DataFrame([gpu | {"cost:shared": 2.0}, gpu | {"cost:shared": 2.0}, cpu]))
    {'runs': 3, 'gpu_hours': 2.0, 'cpu_hours': 0.25, 'kwh': 1.5, 'without_energy': 1}
    """
    runs = with_shares(runs[runs["source"] != "submitted"])
    seconds, energy = runs["share:seconds"], runs["share:energy_wh"]
    gpu = energy.notna() | runs["device"].map(lambda name: is_gpu(str(name))).astype(bool)
    return {"runs": len(runs), "gpu_hours": float(seconds[gpu].sum() / 3600),
            "cpu_hours": float(seconds[~gpu].sum() / 3600), "kwh": float(energy.sum() / 1000),
            "without_energy": int(energy.isna().sum())}


def told(runs: pd.DataFrame) -> str:
    """What runs took together, in a sentence; none where nothing is known.

    >>> one = {"source": "run", "device": "NVIDIA H200", "cost:seconds": 7200.0, "cost:energy_joules": 5.4e6}
    >>> told(pd.DataFrame([one, one | {"cost:energy_joules": None}]))
    '2 runs took 4 GPU-hours and 1.5 kWh; the energy of 1 of them is not known.'
    """
    sums = total(runs)
    took = [f"{_amount(sums[key])} {head}" for key, head in HOURS.items() if sums[key]]
    if not took:
        return ""
    if sums["without_energy"] == sums["runs"]:
        return f"{counted(sums['runs'], 'run')} took {' and '.join(took)}; the energy is not known."
    took.append(f"{_amount(sums['kwh'])} kWh" if sums["kwh"] >= 0.1 else f"{_amount(1000 * sums['kwh'])} Wh")
    rest = f"; the energy of {sums['without_energy']:,} of them is not known" if sums["without_energy"] else ""
    return f"{counted(sums['runs'], 'run')} took {', '.join(took[:-1])} and {took[-1]}{rest}."


def _amount(value: float) -> str:
    """A sum in two or three digits.

    >>> _amount(8.1649), _amount(1234.5), _amount(0.00123), _amount(1e-5), _amount(0)
    ('8.16', '1,234', '0.0012', 'less than 0.001', '0')
    """
    if 0 < value < 0.001:
        return "less than 0.001"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.2g}"


def table(runs: pd.DataFrame) -> Table:
    """What the runs on each dataset took together, and all of them."""
    rows = [{"dataset": dataset} | total(some) for dataset, some in runs.groupby("dataset", sort=True)]
    rows = [row for row in [*rows, {"dataset": "all"} | total(runs)] if row["runs"]]
    columns = (Column("dataset", "Dataset"), Column("runs", "Runs", "number", digits=0),
               *(Column(key, head, "number", digits=3) for key, head in HOURS.items() if any(row[key] for row in rows)),
               Column("kwh", "Energy, kWh", "number", "That of GPUs", 3),
               Column("without_energy", "Runs without energy", "number", "Runs whose energy is not known: those on a "
                      "CPU, ensembles of finished runs, records of earlier versions", 0))
    return Table("costs", "What the runs on each dataset took", columns,
                 pd.DataFrame(rows, columns=[column.key for column in columns]), marked=False)
