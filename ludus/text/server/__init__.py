"""The local server: the HTTP interface of OpenAI over models of this machine."""
