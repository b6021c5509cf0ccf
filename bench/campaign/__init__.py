"""One campaign rendered in every way: by diffusers, by its caches, by cache-dit, and by Adloom."""
