"""The TMA limits of legality of TMA: what is documented, what the compiler refuses, what an emulated GPU, iisan and hardware do."""
