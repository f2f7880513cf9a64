"""`kvtax.budget` called again and again: what is kept between calls never changes an answer."""

import kvtax


def test_short_forms_mean_the_same_every_time():
    answers = [
        (found.max_model_len, found.concurrency, found.verdict, found.max_concurrency)
        for found in (
            kvtax.budget(model="llama-3-8b", gpu="a100-80", **fields)
            for fields in (
                {"context": 4096, "batch": 200},
                {"context": 4096, "batch": 200},
                {"max_model_len": 4096, "concurrency": 200},
                {"context": 4096, "batch": 200},
            )
        )
    ]
    assert len(set(answers)) == 1
    assert answers[0][:3] == (4096, 200, "over_budget")
