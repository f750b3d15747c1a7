-- Podwright's part of job_submit: turns --ipus into licences, and says why a request cannot be.
-- Written by `podwright slurm configure`; your own script lies beside it as job_submit.site.lua
-- and runs after this one. After a change of yours: touch this file.

local trusted = { @UIDS@ }
local here = "@FOLDER@"
local cluster = "@CLUSTER@"
local NONE = 0xfffffffe

local site = {}
do
   local chunk, problem = loadfile(here .. "/job_submit.site.lua")
   if chunk then
      chunk()
      site.submit, site.modify = slurm_job_submit, slurm_job_modify
      slurm_job_submit, slurm_job_modify = nil, nil
   elseif not string.find(problem, "cannot open", 1, true) then
      slurm.log_error("podwright: %s", problem)
      error(problem)
   end
end

local function refuse(format, ...)
   slurm.log_user("podwright: %s", string.format(format, ...))
   return slurm.ERROR
end

local function is_trusted(uid)
   for _, one in ipairs(trusted) do if uid == one then return true end end
   return false
end

-- The names in a list of licences, in every way that a Slurm reads one: "," and ";" between them,
-- "|" since 25.05; ":" or, since 25.05, "=" before the count, "@" before a server, "(" before nodes.
local function licence_names(list)
   local out = {}
   for word in string.gmatch(type(list) == "string" and list or "", "[^,;|]+") do
      local name = string.match(word, "^%s*([^:=@(%s]+)")
      if name then out[#out + 1] = name end
   end
   return out
end

-- Slurm takes no list with both: whoever has devices has licences beside his own.
local function either_or(jd)
   return string.find(jd.licenses or "", "|", 1, true) ~= nil
end

-- Ours before the user's own.
local function with_licences(jd, all)
   if jd.licenses and jd.licenses ~= "" then all[#all + 1] = jd.licenses end
   jd.licenses = table.concat(all, ",")
end

-- What a part of a heterogeneous job is to have stands before all other words of its comment; of one
-- without such a note nobody can say that it is to have nothing. Whoever writes to a whole job writes
-- to each of its parts the same: what is another part's goes.
-- So does what any job asked for where SPANK hands over nothing: licences alone get lost.
local NOTES = { "^ipus=%d+ gcds=%d+ pod=[^;%s]+", "^ipus=%d+", "^vipu=[^;%s]+" }

local function noted(comment)
   for _, pattern in ipairs(NOTES) do
      local found = type(comment) == "string" and string.match(comment, pattern)
      if found then return found end
   end
end

local function note(jd, mine)
   local rest = type(jd.admin_comment) == "string" and jd.admin_comment or ""
   rest = string.gsub(string.sub(rest, #(noted(rest) or "") + 1), "^[;%s]+", "")
   jd.admin_comment = rest == "" and mine or mine .. "; " .. rest
end

-- What stands in --gres=vipu:..., word by word, taken out of the request: no node has any.
-- From hosts where cli_filter.lua runs it arrives among the licences, as podwright.gres.<...>.
local function gres(jd)
   local found = {}
   local function sort(list, pattern, empty)
      local rest = {}
      for word in string.gmatch(type(list) == "string" and list or "", "[^,;]+") do
         local said = string.match(word, pattern)
         if said then
            found[#found + 1] = (string.gsub(said, "%.", ":"))
         elseif word ~= empty then
            rest[#rest + 1] = word
         end
      end
      return table.concat(rest, ",")
   end
   local licences = sort(jd.licenses, "^podwright%.gres%.?(.*)$")
   local moved = #found > 0
   local per_node = sort(jd.tres_per_node, "^gres[:/]vipu[:=]?(.*)$", moved and "gres:none" or nil)
   if #found == 0 then return nil end
   if moved then jd.licenses = licences end
   jd.tres_per_node = per_node
   return found
end

-- @WAY@
local pods = {
@PODS@
}
local default = "@DEFAULT@"
local shared = @SHARED@
-- What a job gets that does not say: so many, 0 for none; nil: it is asked to say.
local default_ipus = @DEFAULT_IPUS@

-- What SPANK handed over, and why it cannot be believed. Slurm keeps it as it is now: what hooks
-- read later is this, so two values, or one that is no number, are nobody's request.
local function given(jd, name)
   local found, problem
   for _, entry in pairs(jd.spank_job_env or {}) do
      local value = string.match(entry, "^" .. name .. "=(.*)$")
         or string.match(entry, "^SPANK_" .. name .. "=(.*)$")
      if value and (found or #value > 9 or not string.match(value, "^%d+$")) then
         problem = string.format("%s was not handed over by --ipus, --num-replicas or --ipus-movable: %s", name, value)
      end
      if value then found = tonumber(value) or 0 end
   end
   return found, problem
end

-- Licences that are ours, in a list that a user typed.
local function ours(licences)
   for _, name in ipairs(licence_names(licences)) do
      if string.find(name, "^podwright_") then return name end
      for _, pod in pairs(pods) do
         local rest = string.sub(name, #pod.licence + 1)
         if string.sub(name, 1, #pod.licence) == pod.licence
            and (rest == "" or string.find(rest, "^_x%d+$")) then
            return name
         end
      end
   end
end

-- Does a submitted job have devices?
local function has_devices(job)
   local asked = given(job, "IPUS")
   return (asked or 0) > 0 or ours(job.licenses) ~= nil
end

local function names()
   local out = {}
   for name in pairs(pods) do out[#out + 1] = name end
   table.sort(out)
   return table.concat(out, ", ")
end

local function largest(pod) return pod.sizes[#pod.sizes] end

-- Why a partition cannot have so many devices; nil: it can. Sizes are the family's, ascending.
local function illegal(pod, n)
   local below, above
   for _, size in ipairs(pod.sizes) do
      if size == n then return nil end
      if size < n then below = size end
      above = above or (size > n and size or nil)
   end
   local use = below and above and string.format("%d or %d", below, above) or tostring(below or above)
   return string.format("partitions have %s devices; use %s", table.concat(pod.sizes, ", "), use)
end

-- The job's nodes are among those that reach the pod. What else it asks of them stays; but & binds
-- tighter than |, and brackets count nodes, so those are refused.
local function near(jd, pod)
   local asked = jd.features
   if pod.feature == "" then return nil end
   if asked == nil or asked == "" then
      jd.features = pod.feature
   elseif string.find(asked, "[|%[%]%*%(]") then
      return string.format("-C '%s' with devices of a pod that only nodes with feature %s reach: join features with & alone",
         asked, pod.feature)
   elseif not string.find("&" .. asked .. "&", "&" .. pod.feature .. "&", 1, true) then
      jd.features = asked .. "&" .. pod.feature
   end
end

local function devices(jd, uid)
   local model = gres(jd)
   model = model and model[1]
   local typed = ours(jd.licenses)
   if typed and not is_trusted(uid) then
      return refuse("licence %s is not asked for by name; ask with --ipus=N", typed)
   end
   local n, forged = given(jd, "IPUS")
   local replicas, forged_too = given(jd, "NUM_REPLICAS")
   local movable, forged_as_well = given(jd, "IPUS_MOVABLE")
   forged = forged or forged_too or forged_as_well
   if forged then return refuse("%s", forged) end
   local het = jd.het_job_offset
   if het ~= nil and het >= 100000 then het = nil end
   if n == 0 or (n == nil and (model or replicas or movable or default_ipus == 0)) then
      if model then return refuse("--gres=vipu names the kind of pod; say how much with --ipus=N") end
      if replicas then return refuse("--num-replicas belongs to --ipus=N, which is missing") end
      if movable then return refuse("--ipus-movable belongs to --ipus=N, which is missing") end
      if het then note(jd, "ipus=0") end
      return slurm.SUCCESS
   end
   if n == nil and default_ipus == nil then
      return refuse("say how many devices the job needs: --ipus=N, up to %d, or --ipus=0 for none",
         largest(pods[default]))
   end
   if n == nil then
      if het then return refuse("each part of a heterogeneous job says its --ipus=N") end
      n = default_ipus
      note(jd, string.format("ipus=%d", n))
   end
   if model == nil or model == "" then model = default end
   local pod = pods[model]
   if pod == nil then
      return refuse("there is no pod of type '%s'; there are: %s", model, names())
   end
   if n > pod.devices then
      return refuse("--ipus=%d: %s has %d", n, model, pod.devices)
   end
   if n > largest(pod) then
      return refuse("--ipus=%d: the largest partition of %s has %d", n, model, largest(pod))
   end
   local problem = illegal(pod, n)
   if problem then return refuse("--ipus=%d: %s", n, problem) end
   if either_or(jd) then
      return refuse("-L '%s' with --ipus=%d: Slurm takes no licence list with | beside other licences, "
         .. "and devices are counted by licences", jd.licenses, n)
   end
   local tasks = jd.num_tasks
   if tasks == nil or tasks >= NONE or tasks < 1 then tasks = 0 end
   if movable and shared then
      return refuse("--ipus-movable: jobs share one partition here, which does not move")
   end
   if shared then
      if jd.min_nodes and jd.min_nodes < NONE and jd.min_nodes > 1 then
         return refuse("%d hosts would be as many GCDs, and a reconfigurable partition has one; use -N 1", jd.min_nodes)
      end
      jd.min_nodes, jd.max_nodes = 1, 1
      tasks = 0
   end
   if tasks > 0 and (tasks > n or n % tasks ~= 0) then
      return refuse("%d tasks would be %d GCDs of %d devices; use a number of tasks that divides %d",
         tasks, tasks, n, n)
   end
   if tasks > 0 and n / tasks > pod.domain then
      return refuse("a GCD has at most %d devices here, so --ipus=%d needs -n %d or more",
         pod.domain, n, math.floor(n / pod.domain))
   end
   if replicas and (n % replicas ~= 0 or (tasks > 0 and replicas % tasks ~= 0)) then
      return refuse("%d replicas do not divide evenly over %d devices in %d tasks", replicas, n, math.max(tasks, 1))
   end
   local far = near(jd, pod)
   if far then return refuse("%s", far) end
   if het then
      note(jd, string.format("ipus=%d gcds=%d pod=%s", n, tasks, model))
      if het == 0 then jd.licenses = "podwright_het_wait:1" end
      return slurm.SUCCESS
   end
   local all = { string.format("%s:%d", pod.licence, n), "podwright_job:1" }
   for _, size in ipairs(pod.sizes) do
      if size <= n then all[#all + 1] = string.format("%s_x%d:%d", pod.licence, size, n) end
   end
   if tasks > 0 then all[#all + 1] = string.format("podwright_gcds:%d", tasks) end
   with_licences(jd, all)
   return slurm.SUCCESS
end

-- @END@
-- Do all nodes reach all pods?
local function reached_by_all()
   for _, pod in pairs(pods or {}) do
      if pod.feature ~= "" then return false end
   end
   return true
end

function slurm_job_submit(jd, parts, uid)
   local said = devices(jd, uid, parts)
   if said ~= slurm.SUCCESS then return said end
   -- Another member of a federation would be sent the job as it came, without its licences.
   if has_devices(jd) then jd.clusters = cluster end
   local mine = noted(jd.admin_comment)
   if site.submit then said = site.submit(jd, parts, uid) end
   if mine then note(jd, mine) end
   return said
end

-- The rule of submission, for what is submitted already: nobody but an administrator changes what a
-- job was counted with, or among how many tasks its devices were divided.
local function modified(jd, job)
   local typed = ours(jd.licenses)
   if typed then
      return refuse("licence %s is not asked for by name; submit the job with what it needs", typed)
   end
   for _, name in ipairs({ "tres_per_node", "tres_per_job", "gres" }) do
      local value = jd[name]
      if type(value) == "string" and string.find(value, "vipu", 1, true) then
         return refuse("a submitted job gets no other devices; submit it anew")
      end
   end
   if not has_devices(job) then return slurm.SUCCESS end
   if jd.licenses then
      return refuse("the licences of a job with devices are Podwright's; submit it anew")
   end
   if jd.features and not reached_by_all() then
      return refuse("the nodes of a job with devices are those that reach its pod; submit it anew with -C")
   end
   if jd.clusters then
      return refuse("a job with devices stays in cluster %s; submit it anew to another", cluster)
   end
   local tasks = jd.num_tasks
   if tasks and tasks < NONE then
      return refuse("a job's devices are divided among its tasks; submit it anew with -n %d", tasks)
   end
   return slurm.SUCCESS
end

-- What heterogeneous jobs are counted with, or wait for. A slurmctld that was killed may have given
-- the number of one to an ordinary job while the service spoke of it, and 26.05 takes N+0 for job N.
local function of_all_parts(licences)
   local counts, blocks = false, false
   for _, name in ipairs(licence_names(licences)) do
      if name == "podwright_het_wait" then return true end
      counts = counts or name == "podwright_job"
      blocks = blocks or string.find(name, "_x%d+$") or string.find(name, "^vipu_%d+$")
   end
   return counts and not blocks
end

function slurm_job_modify(jd, job, parts, uid)
   if job.het_job_id == 0 and of_all_parts(jd.licenses) then
      return refuse("licences of a heterogeneous job, and this is none")
   end
   local said = is_trusted(uid) and slurm.SUCCESS or modified(jd, job)
   if said ~= slurm.SUCCESS then return said end
   if site.modify then said = site.modify(jd, job, parts, uid) end
   local mine = noted(job.admin_comment)
   if mine and jd.admin_comment then note(jd, mine) end
   return said
end

return slurm.SUCCESS
