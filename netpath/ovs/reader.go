package ovs

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// reader reads once what all steps ask for. Otherwise, with many lanes, the tools would take most of a CPU
// for the look in each second.
type reader struct {
	sync.Mutex
	at    time.Time
	db    database
	flows map[string][]string // by bridge, without and with their counters
}

// fresh is how long a reading is reused.
const fresh = 200 * time.Millisecond

func (r *reader) database(ctx context.Context) (database, error) {
	r.Lock()
	defer r.Unlock()
	if time.Since(r.at) < fresh {
		return r.db, nil
	}
	db, err := read(ctx)
	if err == nil {
		r.db, r.flows, r.at = db, map[string][]string{}, time.Now()
	}
	return db, err
}

// forget drops the reading when something is changed.
func (r *reader) forget() {
	r.Lock()
	defer r.Unlock()
	r.at = time.Time{}
}

// versions lets a bridge that is limited to some versions of OpenFlow use any.
const versions = "--protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15"

const isol = "49534f4c" // begins the cookies of Isolane's flows

// cookie returns the cookie of a port's flows, as ovs-ofctl(8) matches and prints it.
func cookie(name string) string { return "cookie=0x" + isol + digest(name)[1:] }

// dump returns a port's flows, without their counters.
func (r *reader) dump(ctx context.Context, on, name string) (string, error) {
	return r.dumpWith(ctx, on, name, "--no-stats")
}

// counted returns a port's flows with their counters.
func (r *reader) counted(ctx context.Context, on, name string) (string, error) {
	return r.dumpWith(ctx, on, name, "--stats")
}

func (r *reader) dumpWith(ctx context.Context, on, name, option string) (string, error) {
	r.Lock()
	defer r.Unlock()
	all, ok := r.flows[on+option]
	if !ok {
		out, err := tool(ctx, ofctl, "", versions, option, "--no-names", "dump-flows", on,
			"cookie=0x"+isol+"00000000/0xffffffff00000000")
		if err != nil {
			return "", err
		}
		all = slices.Sorted(strings.Lines(out))
		if r.flows != nil {
			r.flows[on+option] = all
		}
	}
	var flows strings.Builder
	for _, l := range all {
		if strings.Contains(l, cookie(name)) {
			flows.WriteString(l)
		}
	}
	return flows.String(), nil
}
