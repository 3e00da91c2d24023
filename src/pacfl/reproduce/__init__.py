"""The tables and figures of the paper: what each needs, its runs, and the published values beside ours."""
