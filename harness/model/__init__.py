"""Records and the one interface that every room passes around: Case, Contract, Verdict, Target. They launch nothing."""
