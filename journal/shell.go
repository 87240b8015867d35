package journal

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Shell is the command that a person would type for a step. Some steps only Isolane can do: of these it is
// a comment that says what changes.
func Shell(s Step) string {
	switch s.Kind {
	case "file", "attribute":
		return fmt.Sprintf("echo %s > %s", Quote(s.After), s.Target)
	case "cgroup":
		if s.After == "" {
			return "rmdir " + s.Target
		}
		return "mkdir " + s.Target
	case "controller":
		name, controller := controllerOf(s)
		if s.After == "" {
			return fmt.Sprintf("echo -%s > %s", controller, name)
		}
		return fmt.Sprintf("echo +%s > %s", controller, name)
	case "tasks":
		from, to := s.Target, s.After
		if s.After == s.Target {
			from, to = s.Before, s.After
		}
		return fmt.Sprintf("for p in $(cat %s/cgroup.procs); do echo $p > %s/cgroup.procs; done", from, to)
	case "task":
		id, _, _ := strings.Cut(s.Target, ":")
		return fmt.Sprintf("taskset -pc %s %s", s.After, id)
	case "affinities":
		if strings.HasPrefix(s.After, noted) {
			return "# threads have the CPUs again that they had"
		}
		return "# threads that may use only some CPUs keep to these, but for " + s.After
	case "netns":
		if s.After == "" {
			return "ip netns del " + s.Target
		}
		return "ip netns add " + s.Target
	case "sysctl":
		name, key, _ := strings.Cut(s.Target, ":")
		return fmt.Sprintf("ip netns exec %s sysctl -w %s=%s", name, strings.ReplaceAll(key, "/", "."), s.After)
	case "unit":
		name, property, _ := unitOf(s)
		return fmt.Sprintf("systemctl set-property --runtime %s %s=%s", name, property, s.After)
	case "link":
		return shellLink(s)
	}
	return fmt.Sprintf("# %s %s: %q, was %q", s.Kind, s.Target, s.After, s.Before)
}

// Inverse is the step that takes s back.
func (s Step) Inverse() Step {
	s.Before, s.After = s.After, s.Before
	return s
}

func shellLink(s Step) string {
	var l Link
	switch {
	case s.After == "":
		return "ip link del " + s.Target
	case json.Unmarshal([]byte(s.After), &l) != nil || l.Peer == nil:
		return fmt.Sprintf("ip link add %s type bridge && ip link set %[1]s up", s.Target)
	}
	return fmt.Sprintf("ip link add %s type veth peer name %s address %s netns %s && ip link set %[1]s up", s.Target, l.Peer.Name, l.Peer.MAC, l.Peer.Netns)
}

// Quote makes a word that a shell takes as it is.
func Quote(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_,./:+") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
