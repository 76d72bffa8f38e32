"""Orders that nobody ranks."""

from __future__ import annotations

from evidence.attributes.orders import fixed_list, largest_first, random_order


def test_attributes_go_by_chance_by_width_or_by_a_list() -> None:
    names = ["a", "b", "c"]
    assert random_order(names, 5) == random_order(names, 5)
    drawn = {tuple(one.attribute for one in random_order(names, seed)) for seed in range(60)}
    # 60 draws miss one of six orders with probability below 6 x (5/6)^60 = 1e-4
    assert len(drawn) == 6
    assert [one.attribute for one in largest_first(names, {"a": 8, "b": 64, "c": 64})] == ["b", "c", "a"]
    assert [one.attribute for one in fixed_list(names, ["c", "a"])] == ["c", "a", "b"]
