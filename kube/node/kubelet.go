package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// notOffered is why this node offers no lanes, "" where it does: a manager of the kubelet that gives CPUs or
// memory to containers itself would give away those of lanes, and write its own cpusets over theirs.
func (n *Node) notOffered() string {
	for _, manager := range []string{"cpu", "memory"} {
		file := filepath.Join(n.Kubelet, manager+"_manager_state")
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kubelet without that manager, or before its first start
		}
		var state struct {
			PolicyName string `json:"policyName"`
		}
		if err == nil {
			err = json.Unmarshal(data, &state)
		}
		if err != nil {
			return fmt.Sprintf("%s: expected the state of the kubelet's manager: %v", file, err)
		}
		if !strings.EqualFold(state.PolicyName, "none") {
			return fmt.Sprintf("%s: the kubelet's policy is %q: no lanes are offered: set %sManagerPolicy: "+
				"none, remove the file and start the kubelet again", file, state.PolicyName, manager)
		}
	}
	return ""
}
