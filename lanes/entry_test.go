package lanes

import (
	"testing"
	"time"
)

// A spreader that is not in its cgroup, as who started it was killed before it was there, ends.
func TestStraySpreaderEnds(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	go func() {
		ended <- spreadThreads(t.Context(), Options{Dir: t.TempDir() + "/run"}.Complete(), "/sys/fs/cgroup/isolane-none")
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}
