-- Podwright's part of job_submit: turns --ipus into licences, and says why a request cannot be.
-- Written by `podwright slurm configure`; your own script lies beside it as job_submit.site.lua
-- and runs after this one. After a change of yours: touch this file.

local trusted = { @UIDS@ }
local here = "@FOLDER@"
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
   slurm.log_user("podwright: " .. string.format(format, ...))
   return slurm.ERROR
end

local function is_trusted(uid)
   for _, one in ipairs(trusted) do if uid == one then return true end end
   return false
end

-- What stands in --gres=vipu:..., word by word, taken out of the request: no node has any.
-- From hosts where cli_filter.lua runs it arrives among the licences, as podwright.gres.<...>.
local function gres(jd)
   local found = {}
   local function sort(list, pattern, empty)
      local rest = {}
      for word in string.gmatch(type(list) == "string" and list or "", "[^,]+") do
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
local unsaid = @UNSAID@

local function given(jd, name)
   for _, entry in pairs(jd.spank_job_env or {}) do
      local value = string.match(entry, "^" .. name .. "=(%d+)$")
         or string.match(entry, "^SPANK_" .. name .. "=(%d+)$")
      if value then return tonumber(value) end
   end
end

-- Licences that are ours, in a list that a user typed.
local function ours(licences)
   for word in string.gmatch(licences or "", "[^,|]+") do
      local name = string.match(word, "^%s*([^:@%s]+)")
      if name and string.find(name, "^podwright_") then return name end
      for _, pod in pairs(pods) do
         if name == pod.licence or (name and string.find(name, "^" .. pod.licence .. "_x%d+$")) then
            return name
         end
      end
   end
end

local function names()
   local out = {}
   for name in pairs(pods) do out[#out + 1] = name end
   table.sort(out)
   return table.concat(out, ", ")
end

local function lower_power(n)
   local power = 1
   while power * 2 <= n do power = power * 2 end
   return power
end

local function devices(jd, uid)
   local model = gres(jd)
   model = model and model[1]
   local typed = ours(jd.licenses)
   if typed and not is_trusted(uid) then
      return refuse("licence %s is not asked for by name; ask with --ipus=N", typed)
   end
   local n, replicas = given(jd, "IPUS"), given(jd, "NUM_REPLICAS")
   if n == 0 or (n == nil and (model or replicas or unsaid == 0)) then
      if model then return refuse("--gres=vipu names the kind of pod; say how much with --ipus=N") end
      if replicas then return refuse("--num-replicas belongs to --ipus=N, which is missing") end
      return slurm.SUCCESS
   end
   if n == nil and unsaid == nil then
      return refuse("say how many devices the job needs: --ipus=N, up to %d, or --ipus=0 for none",
         pods[default].largest)
   end
   local het = jd.het_job_offset
   if het ~= nil and het >= 100000 then het = nil end
   if n == nil then
      if het then return refuse("each part of a heterogeneous job says its --ipus=N") end
      n = unsaid
   end
   if model == nil or model == "" then model = default end
   local pod = pods[model]
   if pod == nil then
      return refuse("there is no pod of type '%s'; there are: %s", model, names())
   end
   if n > pod.devices then
      return refuse("--ipus=%d: %s has %d", n, model, pod.devices)
   end
   local power = lower_power(n)
   if power ~= n then
      return refuse("--ipus=%d: partitions have a power of two of devices; use %d or %d", n, power, power * 2)
   end
   if n > pod.largest then
      return refuse("--ipus=%d: the largest partition of %s has %d", n, model, pod.largest)
   end
   local tasks = jd.num_tasks
   if tasks == nil or tasks >= NONE or tasks < 1 then tasks = 0 end
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
         pod.domain, n, n / pod.domain)
   end
   if replicas and (n % replicas ~= 0 or (tasks > 0 and replicas % tasks ~= 0)) then
      return refuse("%d replicas do not divide evenly over %d devices in %d tasks", replicas, n, math.max(tasks, 1))
   end
   if het then
      jd.admin_comment = string.format("ipus=%d gcds=%d pod=%s", n, tasks, model)
      if het == 0 then jd.licenses = "podwright_het_wait:1" end
      return slurm.SUCCESS
   end
   local all = { string.format("%s:%d", pod.licence, n), "podwright_job:1" }
   local k = 1
   while k <= n do
      all[#all + 1] = string.format("%s_x%d:%d", pod.licence, k, n)
      k = k * 2
   end
   if tasks > 0 then all[#all + 1] = "podwright_gcds:" .. tasks end
   if jd.licenses and jd.licenses ~= "" then table.insert(all, 1, jd.licenses) end
   jd.licenses = table.concat(all, ",")
   return slurm.SUCCESS
end

-- @END@
function slurm_job_submit(jd, parts, uid)
   local said = devices(jd, uid, parts)
   if said ~= slurm.SUCCESS then return said end
   if site.submit then return site.submit(jd, parts, uid) end
   return slurm.SUCCESS
end

function slurm_job_modify(jd, job, parts, uid)
   if jd.licenses and not is_trusted(uid) and (ours(jd.licenses) or ours(job.licenses)) then
      return refuse("the licences of a job with devices are Podwright's; submit it anew")
   end
   if site.modify then return site.modify(jd, job, parts, uid) end
   return slurm.SUCCESS
end

return slurm.SUCCESS
