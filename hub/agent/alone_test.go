package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/up"
)

// A hub that accepts connections and stays silent delays nothing at the site: during the first talk with it
// Instances are looked after, even again when one has ended, and people can hold changes.
func TestSilentHub(t *testing.T) {
	t.Setenv("ISOLANE_HISTORY", t.TempDir())
	hub := fakeHub(t, new([]string))
	o := Options{Dir: filepath.Join(t.TempDir(), "agent"), Log: slog.New(slog.DiscardHandler)}
	o.Lanes.Dir = o.file("lanes")
	if err := Join(t.Context(), o, Hub{URL: hub.URL, Token: sites.Token{Authority: up.Digest(hub.Certificate())}}, "one"); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	begun, over := make(chan struct{}), make(chan struct{}) // the first talk
	go func() {
		defer close(over)
		conn, aerr := silent.Accept()
		if aerr != nil {
			return
		}
		close(begun)
		for data := make([]byte, 1000); aerr == nil; _, aerr = conn.Read(data) {
		}
		_ = conn.Close()
	}()
	if err = (joined{URL: "https://" + silent.Addr().String(), Name: "one", New: true}).write(o.hub("joined.json")); err != nil {
		t.Fatal(err)
	}
	if err = (desired.State{Instances: map[string]desired.Instance{"u": {Name: "web"}}}).Write(o.file("state.json")); err != nil {
		t.Fatal(err)
	}
	a, err := begin(o)
	if err != nil {
		t.Fatal(err)
	}
	looked := make(looks)
	a.desired.Runtime = looked
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-ran
	})
	hold := o.file(wishFile)
	if err = os.WriteFile(hold, []byte(`{"leftNanoseconds":3600000000000,"reason":"a match"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(ran)
		a.run(ctx)
	}()
	<-begun
	before := func(what string, is func() bool) {
		for !is() {
			select {
			case <-over:
				t.Fatalf("the talk was over before %s", what)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	before("a hold was taken over", func() bool {
		_, serr := os.Stat(hold)
		return errors.Is(serr, fs.ErrNotExist)
	})
	for range 2 {
		before("it was looked at", func() bool {
			select {
			case <-looked:
				return true
			default:
				return false
			}
		})
		a.instances.Wake() // as when it has ended
	}
}

// looks receives something each time that an Instance is looked at.
type looks chan struct{}

func (l looks) Ensure(ctx context.Context, _ string, _ desired.Instance) error {
	select {
	case l <- struct{}{}:
	case <-ctx.Done():
	}
	return nil
}

func (looks) End(context.Context, string, desired.Instance) error { return nil }
