package workload

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/journal"
)

// session is that of a command, with all that it has started in it. By it they are known also where a person
// has released their lane, so that they go on outside.
type session struct {
	Boot  string `json:"boot"`  // boot_id; "": there is none
	ID    int    `json:"id"`    // process that leads it
	Start uint64 `json:"start"` // of that process, in clock ticks after boot
}

func (p *Instances) session(name string) string { return p.record(name) + ".session" }

// writeSession writes down the session that a process leads.
func writeSession(file string, leader int) error {
	boot, err := journal.BootID()
	if err != nil {
		return err
	}
	start, err := task.StartTime(host.Live(), leader)
	if err != nil {
		return err
	}
	data, err := json.Marshal(session{boot, leader, start})
	if err != nil {
		return err
	}
	return desired.WriteFile(file, data)
}

func readSession(file string) (s session, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil && json.Unmarshal(data, &s) != nil {
		s = session{} // cut short by a loss of power, so of another boot
	}
	return s, err
}

// processes are those of it that have not ended.
func (s session) processes() (pids []int, err error) {
	boot, err := journal.BootID()
	if err != nil || boot != s.Boot {
		return nil, err
	}
	if start, gone := task.StartTime(host.Live(), s.ID); gone == nil && start != s.Start {
		return nil, nil // all have ended: the number is another process's
	}
	all, err := task.Processes(host.Live())
	for _, pid := range all {
		id, ended := unix.Getsid(pid)
		if ended != nil || id != s.ID {
			continue
		}
		is, rerr := task.ReadStat(host.Live(), task.Dir(pid))
		if rerr == nil && is.Start >= s.Start && !is.Dead() {
			pids = append(pids, pid)
		}
	}
	return pids, err
}
