package lanes

import (
	"context"
	"errors"
	"slices"
	"testing"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
)

// lasting is a path with a switch that has something of an earlier boot.
type lasting struct {
	netpath.Path
	dir  string
	busy error // of who wants to change the host while that is removed
}

func (p *lasting) Name() string { return "lasting" }

func (p *lasting) RemoveLeftovers(ctx context.Context) ([]string, error) {
	l, _, err := Open(ctx, Options{Dir: p.dir})
	if err == nil {
		err = l.Close()
	}
	p.busy = err
	return []string{"a bridge"}, nil
}

// What a switch keeps over a reboot is removed while nobody else changes the host: a lane may get a bridge of that name.
func TestLeftoversOfABoot(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	p := &lasting{dir: t.TempDir() + "/run"}
	r, err := Recover(t.Context(), Options{Dir: p.dir, Paths: []netpath.Path{p}}, false)
	if err != nil && !errors.As(err, new(*enforce.NoRecordError)) { // lanes of this host are recorded elsewhere
		t.Fatal(err)
	}
	if !errors.Is(p.busy, journal.ErrBusy) || !slices.Equal(r.Undone, []string{"a bridge"}) {
		t.Errorf("meanwhile: %v; undone: %q", p.busy, r.Undone)
	}
}
