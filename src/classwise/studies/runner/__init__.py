"""How any study is planned, worked through and reported: the graph of jobs, the engines, the result."""
