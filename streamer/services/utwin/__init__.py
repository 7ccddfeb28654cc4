"""core.utwin: the last Publish of each topic. ``last_values`` keeps them; ``service`` answers and saves them."""
