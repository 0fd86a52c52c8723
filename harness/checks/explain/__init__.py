"""Why a result is wrong: hypotheses tested on words and real values, and the one that holds.

`cause.cause_of` is asked after a comparison failed. It says one sentence, or nothing: where nothing holds, where the evidence is
thin, and where two hypotheses hold that mean different things (docs/causes.md)."""
