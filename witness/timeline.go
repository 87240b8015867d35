package witness

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/results"
)

// Own is the kind of a run of an own task. It is recorded where several CPUs are watched, and tells on
// which of them the application was.
const Own = "own"

// Intrusion is one stay of a source on a CPU, of 2 µs or more, with what interrupted it. Begin and End
// are of CLOCK_MONOTONIC.
type Intrusion struct {
	CPU        int
	Kind, Name string
	Begin, End results.Nanoseconds
}

// timelineRoom holds 170,000 intrusions: ten seconds of a CPU with 17,000 a second.
const timelineRoom = 8 << 20

// record begins to note single intrusions, without those noted before.
func (c *collector) record() error {
	if c.notes == nil {
		return nil
	}
	if _, _, err := c.recorded(); err != nil {
		return err
	}
	return c.coll.Variables["recording"].Set(true)
}

// recorded ends the recording and returns what it found, and how many intrusions had no room.
func (c *collector) recorded() (all []Intrusion, lost uint64, err error) {
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
	names := map[sourceKey]string{}
	for i, k := range c.keys {
		k.Work = 0
		names[k] = c.source(k, &c.values[i]).Name
	}
	c.notes.SetDeadline(time.Unix(0, 1)) // past: what is there now is read
	var r ringbuf.Record
	for {
		if err = c.notes.ReadInto(&r); errors.Is(err, os.ErrDeadlineExceeded) {
			return all, lost, nil
		}
		var n struct { // the struct of bpf/trace.c
			sourceNote
			Begin, End uint64
		}
		if err == nil {
			_, err = binary.Decode(r.RawSample, binary.NativeEndian, &n)
		}
		if err != nil {
			return nil, 0, err
		}
		in := Intrusion{CPU: int(n.CPU), Kind: Own, Begin: results.Nanoseconds(n.Begin), End: results.Nanoseconds(n.End)}
		if int(n.Kind) < len(kinds()) {
			in.Kind = kinds()[n.Kind]
			in.Name = names[sourceKey{CPU: n.CPU, Kind: n.Kind, ID: n.ID, Start: n.Start}]
		}
		if in.Name == "" {
			in.Name = others
		}
		all = append(all, in)
	}
}

type sourceNote struct {
	CPU, Kind uint32
	ID, Start uint64
}

// others is the name of the sources that found no room of their own.
const others = "others"

// sleepingRing says why a ring buffer must not be written from the scheduler: before Linux 6.12 its
// lock sleeps in a real-time kernel (commit "bpf: Use raw_spinlock_t in ringbuf").
func sleepingRing(root fs.FS) error {
	realtime, err := fs.ReadFile(root, "sys/kernel/realtime")
	if err != nil || string(bytes.TrimSpace(realtime)) != "1" {
		return nil // only real-time kernels have the file
	}
	release, err := fs.ReadFile(root, "proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	if !(host.Kernel{Release: string(release)}).AtLeast(6, 12) {
		return fmt.Errorf("the ring buffer of this real-time kernel may sleep: needs Linux 6.12, found %s", bytes.TrimSpace(release))
	}
	return nil
}
