package testbed

import (
	"context"
	"fmt"
	"time"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/network"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/witness"
)

// restarts is a probe during which the application of one instance is killed and restarted.
type restarts interface {
	Restarts(instances int) (instance int) // less than 0 for none
}

// restartAt is the part of the window after which it is killed, so that the others are seen before and after.
const restartAt = 4

// whileKilled adds a killed instance to what may have dropped segments, and records the result.
func whileKilled(m *results.Measurement, said string) {
	if said == "" {
		return
	}
	m.Facts["killed"] = said
	for _, s := range m.Segments {
		if s.Sent > s.Got {
			s.Dropped["the instance that was killed"] = s.Sent - s.Got
		}
	}
}

// unplug sets the device to an instance's client down.
func unplug(netns string) error {
	h, err := netdev.Open(netns)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.LinkByName(probe.Behind)
	if err == nil {
		err = h.LinkSetDown(l)
	}
	return err
}

// restart kills the servers of the instance that the probe names, and restarts them. said is the result, ""
// if nothing was to be done. Meanwhile its device to its client is down, as a machine's would be.
func (r *Bed) restart(ctx context.Context, at place, spec scenario.Probe, clients []client, m moment,
	w *witness.Session) (said string, err error) {
	p, is := spec.Probe.(restarts)
	if !is || len(clients) < 2 {
		return "", nil
	}
	k := p.Restarts(len(clients))
	if k < 0 {
		return "", nil
	}
	clock, err := probe.NewClock()
	if err != nil {
		return "", err
	}
	given := clients[k].given
	begin := given.Start + int64(given.Warmup)
	if err = pause(ctx, time.Duration(begin-clock.Now())+given.Window/restartAt); err != nil {
		return "", err
	}
	each := len(m.application) / len(clients)
	servers := m.application[k*each : (k+1)*each]
	for _, s := range servers {
		w.SubjectDone(s.PID())
	}
	killed := time.Duration(clock.Now() - begin)
	if err = stopAll(servers); err == nil {
		err = unplug(network.ApplicationNetns(k))
	}
	if err != nil {
		return "", fmt.Errorf("restart: %w", err)
	}
	anew, err := r.startServersOf(ctx, at, k)
	copy(servers, anew) // in their place, so that they end with the run
	if err != nil {
		return "", fmt.Errorf("restart: %w", err)
	}
	for _, s := range anew {
		w.AddSubject(witness.Subject{Role: results.Application, PID: s.PID(), Planned: at.cell.Application,
			Tree: true})
	}
	back := time.Duration(clock.Now() - begin)
	return fmt.Sprintf("instance %d was killed %s after the window had begun, and was ready again after %s", k+1,
		killed.Round(time.Millisecond), (back - killed).Round(time.Millisecond)), nil
}
