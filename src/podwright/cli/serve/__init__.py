"""Commands that run or examine services: servers, agents, doctor, metrics, the page, proxies."""
