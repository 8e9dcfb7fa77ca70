package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/stretchr/testify/require"
)

// Defect F9: the services had no bound on memory, processors, processes and logs, wrote anywhere and kept every right of the
// engine's default; each recreated producer left a volume behind.
func TestComposeServicesHaveWhatTheyNeedAndNoMore(t *testing.T) {
	t.Parallel()
	services := parse(t, filepath.Join("..", "docker-compose.yml"))["services"].(map[string]any)
	for _, role := range []string{"keys", "broker", "trainer", "inference", "producer", "tools", "archive", "view"} {
		service := services[role].(map[string]any)
		require.Equal(t, true, service["read_only"], role)
		require.Equal(t, []any{"ALL"}, service["cap_drop"], role)
		require.Equal(t, []any{"no-new-privileges:true"}, service["security_opt"], role)
		for _, bound := range []string{"mem_limit", "cpus", "pids_limit"} {
			require.NotEmpty(t, service[bound], "%s: %s", role, bound)
		}
		require.NotEmpty(t, service["logging"].(map[string]any)["options"].(map[string]any)["max-size"], role)
		mounted := false
		for _, kind := range []string{"volumes", "tmpfs"} {
			mounts, _ := service[kind].([]any)
			for _, mount := range mounts {
				mounted = mounted || strings.Contains(mount.(string), "/runs")
			}
		}
		require.True(t, mounted, "%s: an image's volume without a name would stay behind", role)
	}
}

// Defect F9: broker and trainer could write to their image.
func TestKubernetesContainersHaveWhatTheyNeedAndNoMore(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"broker", "trainer", "inference", "producer", "tools", "archive"} {
		text, err := os.ReadFile(filepath.Join("kubernetes", role+".yaml"))
		require.NoError(t, err)
		found := false
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			object, err := yaml.Parser().Unmarshal([]byte(document))
			require.NoError(t, err, role)
			spec, _ := object["spec"].(map[string]any)
			template, ok := spec["template"].(map[string]any)
			if !ok {
				continue
			}
			pod := template["spec"].(map[string]any)
			context := pod["securityContext"].(map[string]any)
			require.Equal(t, true, context["runAsNonRoot"], role)
			require.Equal(t, map[string]any{"type": "RuntimeDefault"}, context["seccompProfile"], role)
			for _, c := range pod["containers"].([]any) {
				container := c.(map[string]any)
				rights := container["securityContext"].(map[string]any)
				require.Equal(t, true, rights["readOnlyRootFilesystem"], role)
				require.Equal(t, false, rights["allowPrivilegeEscalation"], role)
				require.NotEmpty(t, container["resources"].(map[string]any)["limits"].(map[string]any)["memory"], role)
				mounts := container["volumeMounts"].([]any)
				require.Contains(t, mounts, map[string]any{"name": "tmp", "mountPath": "/tmp"}, role)
				found = true
			}
		}
		require.True(t, found, role)
	}
}
