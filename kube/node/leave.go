package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/lanes"
)

// Leave removes what this program has left on its node: the hook, files of claims, its folder among the
// kubelet's plugins. While lanes of pods are in force it removes nothing: their containers could not be
// started again, and only the kubelet says that they may go.
func Leave(ctx context.Context, c Config) error {
	l, _, err := lanes.OpenPatiently(ctx, c.Lanes) // nothing is prepared meanwhile
	if err != nil {
		return err
	}
	defer l.Close()
	var ofPods []string
	for _, p := range l.Placement.Lanes {
		if ask.Claim(p.Name) != "" {
			ofPods = append(ofPods, p.Name)
		}
	}
	if len(ofPods) > 0 {
		return fmt.Errorf("lanes %s: expected none of pods in force: delete the pods that have them, while "+
			"isolane-kube node runs here", strings.Join(ofPods, ", "))
	}
	n := &Node{Config: c}
	for _, pattern := range []string{n.cdiFile("*"), filepath.Join(n.CDI, hidden+"*")} {
		files, gerr := filepath.Glob(pattern)
		err = errors.Join(err, gerr)
		for _, name := range files {
			err = errors.Join(err, os.Remove(name))
		}
	}
	return errors.Join(err, os.RemoveAll(filepath.Dir(n.hook())))
}
