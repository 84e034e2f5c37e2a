"""How a study is planned, run and reported: the graph of jobs, the engines, the result."""
