import gc
import weakref

from postgrad.models.graph_capture import capturing


def test_no_garbage_is_collected_while_a_graph_is_captured():
    class Cycle:
        def __init__(self):
            self.me = self

    seen = []
    before = Cycle()
    weakref.finalize(before, seen.append, "before")
    del before
    with capturing():
        assert seen == ["before"] and not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    with capturing():
        pass
    was = gc.isenabled()
    gc.enable()
    assert not was  # as it was found
