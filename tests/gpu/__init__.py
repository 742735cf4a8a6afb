"""What only a GPU can prove (`make test-gpu`): ``rank.py`` measures in the stack's interpreter, ``judge.py`` judges.

``test_rank.py`` tries both without a device, the judge on figures that are right and wrong.
"""
