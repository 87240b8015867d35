package frames

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/probe"
)

// readyLine begins the line that the forwarder prints when it takes frames.
const readyLine = "ready "

// Ready returns what the application prints when it takes frames.
func (p Probe) Ready() string {
	if p.Forwarder == testpmd {
		return testpmdReady
	}
	return readyLine
}

// Serve is the application: it forwards frames back to their sender, until ctx ends.
func (p Probe) Serve(ctx context.Context, c probe.Conditions, stdout io.Writer) error {
	done, err := probe.HotLoop()
	if err != nil {
		return err
	}
	defer done()
	at := c.At(service)
	device, err := deviceOf(at.Addr())
	if err != nil {
		return err
	}
	if p.Forwarder == kernel {
		return route(ctx, device.Attrs(), at, stdout)
	}
	l, err := reserve(device, at)
	if err != nil {
		return err
	}
	defer l.close()
	if p.Forwarder == testpmd {
		return become(l, p.Socket)
	}
	f := &forwarder{local: l, heard: newTally()}
	if f.clock, err = probe.NewClock(); err != nil {
		return err
	}
	if f.port, err = open(l, p.Socket); err != nil {
		return err
	}
	defer f.port.close()
	if f.in, f.out, err = dropped(l.device.Index); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s%s\n", readyLine, at)
	return f.run(ctx, p.Wait)
}

// counts are the forwarder's counts since its start. It reports them to the generator.
type counts struct {
	Took      uint64 // a generator's frames: each was sent back, refused, or found the ring full
	Sent      uint64
	Refused   uint64 // its time to live had run out
	Full      uint64 // there was no room to send it
	Doubled   uint64 // of those in Took, those that had arrived before
	NoRoom    uint64 // for which its socket had no room
	DeviceIn  uint64 // which its device could not receive
	DeviceOut uint64 // or send
}

type forwarder struct {
	local
	port    *opened
	clock   probe.Clock
	in, out uint64 // drops of the device at the start
	heard   tally  // about the generator that asked last
	counts
}

// idle is how often a forwarder that may sleep looks for frames in vain before it does. awake is for how long
// it looks if it is adaptive, in nanoseconds.
const (
	idle  = 64
	awake = 1_000_000
)

func (f *forwarder) run(ctx context.Context, wait string) error {
	watched := []unix.PollFd{{Events: unix.POLLIN}}
	last := int64(0) // when a frame last arrived
	for round, vain := 0, 0; ; round++ {
		n, err := f.port.pull(f.take)
		if err == nil {
			err = f.port.flush()
		}
		if err != nil {
			return err
		}
		if vain++; n > 0 {
			vain = 0
		}
		if wait == adaptive {
			if now := f.clock.Now(); n > 0 {
				last = now
			} else if now-last < awake {
				vain = 0
			}
		}
		if vain >= idle && wait != spin {
			watched[0].Fd = int32(f.port.descriptor()) // which may have changed
			if _, err = unix.Poll(watched, 100); err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
		}
		if (vain >= idle || round%1024 == 0) && ctx.Err() != nil {
			return nil
		}
	}
}

// take sends a frame back. It also forwards frames of others to its port, but does not count them.
func (f *forwarder) take(b []byte) {
	s, ok := read(b)
	question, counted := ok && s.magic == isQuestion, ok && s.magic == isFrame
	to := f.port.buffer()
	if to == nil {
		_ = f.port.flush() // its errors reach the loop
		to = f.port.buffer()
	}
	end := &f.Sent
	switch {
	case !turn(b):
		end = &f.Refused
	case to == nil:
		end = &f.Full
	case question:
		f.port.push(f.answer(to[:copy(to, b)], s))
	default:
		f.port.push(copy(to, b))
	}
	if counted {
		f.Took++
		*end++
		f.heard.hear(s.number)
	}
}

// answer writes the answer to a question, and returns its length. After it, numbers of frames begin anew.
func (f *forwarder) answer(b []byte, to stamped) int {
	var err error
	f.Doubled += f.heard.doubled
	f.heard.forget()
	f.NoRoom, err = f.port.drops()
	in, out, derr := dropped(f.device.Index)
	f.DeviceIn, f.DeviceOut = in-f.in, out-f.out
	if err == nil && derr == nil {
		writeAnswer(b, to, f.counts, f.port.how)
	}
	return len(b)
}

// writeAnswer is the inverse of readAnswer.
func writeAnswer(b []byte, to stamped, c counts, how string) {
	stamp(b, isAnswer, to.number, to.at)
	// a longer text would not fit; a shorter one is followed by zeros
	n, _ := binary.Encode(b[least:], binary.BigEndian, c)
	copy(b[least+n:], how)
}

// questionSize leaves room for an answer.
const questionSize = 512

// readAnswer reads what writeAnswer has written.
func readAnswer(b []byte) (c counts, how string) {
	n, err := binary.Decode(b[least:], binary.BigEndian, &c)
	if err != nil {
		return counts{}, ""
	}
	text := b[least+n:]
	for i, char := range text {
		if char == 0 {
			text = text[:i]
			break
		}
	}
	return c, string(text)
}
