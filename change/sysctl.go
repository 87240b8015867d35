package change

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
)

// KindSysctl sets a setting that each network namespace has.
const KindSysctl = "sysctl"

// SysctlTarget names a setting of a network namespace for a step of KindSysctl. key is below /proc/sys.
func SysctlTarget(namespace, key string) string { return namespace + ":" + key }

type sysctl struct{ kernel }

func (sysctl) Check(s journal.Step) error {
	name, key, _ := strings.Cut(s.Target, ":")
	if key != "net/ipv4/tcp_congestion_control" {
		return fmt.Errorf("%q: no setting of a network namespace that isolane changes", key)
	}
	return errors.Join(netdev.CheckName(name), netdev.CheckName(s.After))
}

func (sysctl) inNamespace(target string, f func(path string) error) error {
	name, key, _ := strings.Cut(target, ":")
	return netdev.In(name, func() error { return f(filepath.Join("/proc/sys", key)) })
}

func (c sysctl) Read(_ context.Context, s journal.Step) (value string, err error) {
	err = c.inNamespace(s.Target, func(path string) error {
		value, err = c.read(path)
		return err
	})
	return value, err
}

func (c sysctl) Write(_ context.Context, s journal.Step, value string) error {
	return c.inNamespace(s.Target, func(path string) error { return c.write(path, value) })
}

// Shell returns a sysctl(8) command.
func (sysctl) Shell(s journal.Step) string {
	name, key, _ := strings.Cut(s.Target, ":")
	return fmt.Sprintf("ip netns exec %s sysctl -w %s=%s", name, strings.ReplaceAll(key, "/", "."), s.After)
}
