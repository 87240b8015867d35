package witness

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/witness/tail"
)

// timelineBytes holds 200,000 notes: ten seconds at 20,000 per second.
const timelineBytes = 16 << 20

// record starts recording single intrusions, and discards earlier notes.
func (c *collector) record() error {
	if c.notes == nil {
		return nil
	}
	if _, _, err := c.recorded(nil); err != nil {
		return err
	}
	return c.coll.Variables["recording"].Set(true)
}

// sourceNote is struct note of bpf/trace.c.
type sourceNote struct {
	CPU, Kind                                  uint32
	ID, Start, Begin, End, Woken, Stolen, Late uint64
}

// recorded ends the recording. It returns what was found, and how many notes had no room. roles reads all
// stays and returns a function that gives the role of an own task's process.
func (c *collector) recorded(roles func([]taskSource) func(taskSource) string) (all []tail.Intrusion,
	lost uint64, err error) {
	if c.notes == nil {
		return nil, 0, nil
	}
	if err = c.coll.Variables["recording"].Set(false); err != nil {
		return nil, 0, err
	}
	var states []cpuState
	if err = errors.Join(c.lookup(), c.coll.Maps["cpus"].Lookup(uint32(0), &states)); err != nil {
		return nil, 0, err
	}
	lost = -c.lost
	c.lost = 0
	for _, s := range states {
		c.lost += s.Lost
	}
	lost += c.lost
	known := map[sourceKey]taskSource{}
	for i, k := range c.keys {
		k.Work = 0
		known[k] = c.taskSource(k, &c.values[i])
	}
	self, err := fs.ReadFile(c.root, "proc/self/comm")
	if err != nil {
		return nil, 0, err
	}
	var role func(taskSource) string
	if roles != nil {
		role = roles(slices.Collect(maps.Values(known)))
	}
	c.notes.SetDeadline(time.Unix(0, 1)) // in the past: read only what is there now
	ended := map[uint64]uint64{}         // the last run of a thread
	var r ringbuf.Record
	for {
		if err = c.notes.ReadInto(&r); errors.Is(err, os.ErrDeadlineExceeded) {
			return all, lost, nil
		}
		var n sourceNote
		if err == nil {
			_, err = binary.Decode(r.RawSample, binary.NativeEndian, &n)
		}
		if err != nil {
			return nil, 0, err
		}
		if n.Woken > 0 {
			n.Woken = max(n.Woken, ended[n.ID]) // it may have been woken before it slept
		}
		if ended[n.ID] = n.End; role != nil {
			all = append(all, n.intrusion(known, role, string(bytes.TrimSpace(self))))
		}
	}
}

// intrusion returns the intrusion of a note. self is the name of Isolane's own program.
func (n sourceNote) intrusion(known map[sourceKey]taskSource, role func(taskSource) string, self string) (
	in tail.Intrusion) {
	in = tail.Intrusion{CPU: int(n.CPU), Kind: tail.Own, Begin: nanoseconds(n.Begin), End: nanoseconds(n.End)}
	key := sourceKey{CPU: n.CPU, Kind: n.Kind, ID: n.ID, Start: n.Start}
	if int(n.Kind) < len(kinds()) {
		in.Kind = kinds()[n.Kind]
		in.Name = cmp.Or(known[key].Name, results.Others)
		return in
	}
	key.Kind = 0 // a task
	st := known[key]
	if in.Name, in.TID = role(st), int(n.ID); in.Name == "" && st.Name != "" {
		in.Kind, in.Name = results.Task, st.Name
	}
	if in.Server = in.TID; st.Name == self {
		in.Server = st.process.id
	}
	in.Woken, in.Stolen, in.Late = nanoseconds(n.Woken), nanoseconds(n.Stolen), nanoseconds(n.Late)
	return in
}

// sleepingRing says why a ring buffer must not be written from the scheduler: before Linux 6.12 its lock
// sleeps in a real-time kernel (commit "bpf: Use raw_spinlock_t in ringbuf").
func sleepingRing(root fs.FS) error {
	realtime, err := fs.ReadFile(root, "sys/kernel/realtime")
	if err != nil || string(bytes.TrimSpace(realtime)) != "1" {
		return nil
	}
	release, err := fs.ReadFile(root, "proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	if !(host.Kernel{Release: string(release)}).AtLeast(6, 12) {
		return fmt.Errorf("the ring buffer of this real-time kernel may sleep: needs Linux 6.12, found %s",
			bytes.TrimSpace(release))
	}
	return nil
}
