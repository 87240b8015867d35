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

// session is the session of a command, with everything that the command has started in it. It identifies
// these processes even after a person has released their lane, so that they run on outside of it.
type session struct {
	Boot  string `json:"boot"`  // boot_id; "": there is no session
	ID    int    `json:"id"`    // of the process that leads it
	Start uint64 `json:"start"` // of that process, in clock ticks after boot
}

func (p *Instances) sessionFile(name string) string { return p.recordFile(name) + ".session" }

// writeSession stores the session that a process leads.
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
		s = session{} // cut short by a loss of power, so of an earlier boot
	}
	return s, err
}

// processes returns the processes of the session that have not ended.
func (s session) processes() (pids []int, err error) {
	boot, err := journal.BootID()
	if err != nil || boot != s.Boot {
		return nil, err
	}
	if start, gone := task.StartTime(host.Live(), s.ID); gone == nil && start != s.Start {
		return nil, nil // all have ended: another process has the id now
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
